package planner

// Names of the planner's metrics. Those that Dynamo 0.8 has keep what they are called there, below the
// prefix of Dynamo 1.5; the last three are our own.
const (
	MetricPrefillWorkers      = "dynamo_planner_num_p_workers"             // gauge: prefill workers that serve
	MetricDecodeWorkers       = "dynamo_planner_num_d_workers"             // gauge: decode workers that serve
	MetricObservedTTFT        = "dynamo_planner_observed_ttft"             // gauge, ms: mean of the last window
	MetricObservedITL         = "dynamo_planner_observed_itl"              // gauge, ms: mean of the last window
	MetricObservedRequestRate = "dynamo_planner_observed_request_rate"     // gauge, requests/s
	MetricObservedDuration    = "dynamo_planner_observed_request_duration" // gauge, s: mean of finished requests
	MetricObservedISL         = "dynamo_planner_observed_isl"              // gauge, tokens: mean
	MetricObservedOSL         = "dynamo_planner_observed_osl"              // gauge, tokens: mean
	MetricPrefillCorrection   = "dynamo_planner_p_correction_factor"       // gauge: time of prompts over the profile's; may exceed 1
	MetricDecodeCorrection    = "dynamo_planner_d_correction_factor"       // gauge: time of steps over the profile's
	MetricPredictedRate       = "dynamo_planner_predicted_request_rate"    // gauge, requests/s: highest within the look-ahead
	MetricPredictedISL        = "dynamo_planner_predicted_isl"             // gauge, tokens: mean of the lengths planned on
	MetricPredictedOSL        = "dynamo_planner_predicted_osl"             // gauge, tokens: mean of the lengths planned on
	MetricPredictedPrefill    = "dynamo_planner_predicted_num_p"           // gauge: prefill workers proposed
	MetricPredictedDecode     = "dynamo_planner_predicted_num_d"           // gauge: decode workers proposed
	MetricGPUHours            = "dynamo_planner_gpu_hours"                 // counter: device-hours held
	MetricDecisions           = "dynamo_planner_decisions_total"           // counter by cause or refusal
	MetricPredictedMisses     = "dynamo_planner_predicted_miss_ratio"      // gauge: share of requests that the plan is expected to miss
	MetricBestEffort          = "dynamo_planner_best_effort"               // gauge: 1 while no plan within the budget holds the target
)
