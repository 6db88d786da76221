package metrics

// Prefixes of all names.
const (
	PrefixFrontend  = "dynamo_frontend_"
	PrefixComponent = "dynamo_component_"
	PrefixNIXL      = "dynamo_nixl_"
	PrefixGPU       = "dynamo_gpu_"
	PrefixNode      = "dynamo_node_"
	PrefixPlanner   = "dynamo_planner_"
)

// Frontend metrics that Dynamo defines.
const (
	FrontendRequests            = PrefixFrontend + "requests_total"
	FrontendRequestsStarted     = PrefixFrontend + "requests_started_total"
	FrontendInflight            = PrefixFrontend + "inflight_requests"
	FrontendActive              = PrefixFrontend + "active_requests"
	FrontendQueued              = PrefixFrontend + "queued_requests"
	FrontendDisconnectedClients = PrefixFrontend + "disconnected_clients"
	FrontendRequestDuration     = PrefixFrontend + "request_duration_seconds"
	FrontendTTFT                = PrefixFrontend + "time_to_first_token_seconds"
	FrontendITL                 = PrefixFrontend + "inter_token_latency_seconds"
	FrontendISL                 = PrefixFrontend + "input_sequence_tokens"
	FrontendOSL                 = PrefixFrontend + "output_sequence_tokens"
	FrontendOutputTokens        = PrefixFrontend + "output_tokens_total"
	FrontendCachedTokens        = PrefixFrontend + "cached_tokens"
	FrontendTokenizerLatency    = PrefixFrontend + "tokenizer_latency_ms"
	FrontendStageDuration       = PrefixFrontend + "stage_duration_seconds"
	FrontendStageRequests       = PrefixFrontend + "stage_requests"
	FrontendModelKVBlocks       = PrefixFrontend + "model_total_kv_blocks"
	FrontendModelMaxSeqs        = PrefixFrontend + "model_max_num_seqs"
	FrontendModelMaxBatch       = PrefixFrontend + "model_max_num_batched_tokens"
	FrontendModelContext        = PrefixFrontend + "model_context_length"
	FrontendModelBlockSize      = PrefixFrontend + "model_kv_cache_block_size"
	FrontendModelMigrationLimit = PrefixFrontend + "model_migration_limit"
	FrontendModelMigrations     = PrefixFrontend + "model_migration_total"
	FrontendModelCancellations  = PrefixFrontend + "model_cancellation_total"
	FrontendModelRejections     = PrefixFrontend + "model_rejection_total"
)

// Frontend metrics of our own: refusals by reason, and the prefix index.
const (
	FrontendRefusals      = PrefixFrontend + "refused_requests_total"
	FrontendKVPredicted   = PrefixFrontend + "kv_predicted_blocks_total"
	FrontendKVFound       = PrefixFrontend + "kv_found_blocks_total"
	FrontendKVReusable    = PrefixFrontend + "kv_reusable_blocks_total"
	FrontendKVFalse       = PrefixFrontend + "kv_false_blocks_total"
	FrontendKVIndexBlocks = PrefixFrontend + "kv_index_blocks"
	FrontendKVIndexBytes  = PrefixFrontend + "kv_index_bytes"
)

// Frontend metrics of our own, about the requests of other frontends.
const (
	FrontendReplicaFlights   = PrefixFrontend + "replica_flights"
	FrontendReplicaGaps      = PrefixFrontend + "replica_gaps_total"
	FrontendReplicaSnapshots = PrefixFrontend + "replica_snapshots_total"
	FrontendReplicaDropped   = PrefixFrontend + "replica_dropped_total"
)

// Worker metrics that Dynamo defines.
const (
	ComponentRequests        = PrefixComponent + "requests_total"
	ComponentInflight        = PrefixComponent + "inflight_requests"
	ComponentRequestDuration = PrefixComponent + "request_duration_seconds"
	ComponentRequestBytes    = PrefixComponent + "request_bytes_total"
	ComponentErrors          = PrefixComponent + "errors_total"
	ComponentCancellations   = PrefixComponent + "cancellation_total"
	ComponentUptime          = PrefixComponent + "uptime_seconds"
	ComponentModelLoadTime   = PrefixComponent + "model_load_time_seconds"
	ComponentDrainTime       = PrefixComponent + "drain_time_seconds"
	ComponentTotalBlocks     = PrefixComponent + "total_blocks"
	ComponentCacheUsage      = PrefixComponent + "gpu_cache_usage_percent"
	ComponentCacheHitRate    = PrefixComponent + "kv_cache_hit_rate"
)

// Worker metrics of our own, mostly about disaggregation.
const (
	ComponentKVBlocks           = PrefixComponent + "kv_blocks"
	ComponentSequences          = PrefixComponent + "sequences"
	ComponentPreemptions        = PrefixComponent + "preemptions_total"
	ComponentEvictions          = PrefixComponent + "kv_evicted_blocks_total"
	ComponentPromptTokens       = PrefixComponent + "prompt_tokens_total"
	ComponentGeneratedTokens    = PrefixComponent + "generated_tokens_total"
	ComponentStepTime           = PrefixComponent + "step_duration_seconds"
	ComponentStepRatio          = PrefixComponent + "step_prediction_ratio"
	ComponentStepWait           = PrefixComponent + "step_wait_seconds_total"
	ComponentChunkTokens        = PrefixComponent + "prefill_chunk_tokens"
	ComponentDraftTokens        = PrefixComponent + "spec_decode_draft_tokens_total"
	ComponentAcceptedTokens     = PrefixComponent + "spec_decode_accepted_tokens_total"
	ComponentPrefills           = PrefixComponent + "prefill_total"
	ComponentRemoteTime         = PrefixComponent + "remote_prefill_duration_seconds"
	ComponentPrefillQueueDepth  = PrefixComponent + "prefill_queue_depth"
	ComponentPrefillQueueWait   = PrefixComponent + "prefill_queue_wait_seconds"
	ComponentPrefillRedelivered = PrefixComponent + "prefill_redelivered_total"
	ComponentPrefillDead        = PrefixComponent + "prefill_dead_lettered_total"
	ComponentKVTransferBytes    = PrefixComponent + "kv_transfer_bytes_total"
	ComponentKVTransferTime     = PrefixComponent + "kv_transfer_duration_seconds"
	ComponentKVTransferExposed  = PrefixComponent + "kv_transfer_exposed_seconds"
	ComponentDecodeTime         = PrefixComponent + "decode_duration_seconds"
	ComponentImages             = PrefixComponent + "images_total"
	ComponentEncodeTime         = PrefixComponent + "encode_seconds"
	ComponentEmbeddingsBytes    = PrefixComponent + "embeddings_transfer_bytes_total"
	ComponentEmbeddingsTime     = PrefixComponent + "embeddings_transfer_duration_seconds"
	ComponentHolds              = PrefixComponent + "kv_holds_total"
	ComponentHoldTime           = PrefixComponent + "kv_hold_seconds"
	ComponentFirstLegs          = PrefixComponent + "first_legs_total"
	ComponentFirstLegTime       = PrefixComponent + "first_leg_duration_seconds"
	ComponentRooms              = PrefixComponent + "bootstrap_rooms_total"
	ComponentHandoversStarted   = PrefixComponent + "handovers_started_total"
	ComponentHandovers          = PrefixComponent + "handovers_total"
	ComponentHandoverBytes      = PrefixComponent + "handover_bytes_total"
	ComponentHandoverTime       = PrefixComponent + "handover_duration_seconds"
	ComponentHandoverPause      = PrefixComponent + "handover_pause_seconds"
	ComponentQuarantines        = PrefixComponent + "kv_quarantines_total"
	ComponentLeaseLosses        = PrefixComponent + "lease_lost_total"
)

// NIXL metrics. Names follow NIXL's telemetry events; units are base units.
const (
	NIXLBytes         = PrefixNIXL + "agent_bytes_total"
	NIXLRequests      = PrefixNIXL + "agent_requests_total"
	NIXLXferTime      = PrefixNIXL + "agent_xfer_seconds_total"
	NIXLTxBytes       = PrefixNIXL + "agent_tx_bytes_total"
	NIXLRxBytes       = PrefixNIXL + "agent_rx_bytes_total"
	NIXLXferDuration  = PrefixNIXL + "agent_xfer_time_seconds"
	NIXLPostDuration  = PrefixNIXL + "agent_xfer_post_time_seconds"
	NIXLErrors        = PrefixNIXL + "agent_errors_total"
	NIXLRefused       = PrefixNIXL + "agent_refused_total"
	NIXLNotifications = PrefixNIXL + "agent_notifications_total"
	NIXLMemory        = PrefixNIXL + "agent_memory_registered_bytes"
	NIXLTickets       = PrefixNIXL + "agent_open_tickets"
	NIXLPeers         = PrefixNIXL + "agent_peers"
	NIXLFallbacks     = PrefixNIXL + "agent_fallbacks_total"
)

// GPU metrics, of all GPUs of a node, whichever program uses them.
const (
	GPUUtilization = PrefixGPU + "utilization_ratio"
	GPUMemoryBusy  = PrefixGPU + "memory_busy_ratio"
	GPUMemory      = PrefixGPU + "memory_bytes"
	GPUMemoryUsed  = PrefixGPU + "memory_used_bytes"
	GPUPower       = PrefixGPU + "power_watts"
	GPUPowerLimit  = PrefixGPU + "power_limit_watts"
	GPUTemperature = PrefixGPU + "temperature_celsius"
	GPUClock       = PrefixGPU + "sm_clock_hertz"
	GPUThrottled   = PrefixGPU + "throttled"
)

// Metrics of a node itself.
const (
	NodeAlarm       = PrefixNode + "alarm"
	NodeCertificate = PrefixNode + "certificate_end_seconds"
	NodeLogDropped  = PrefixNode + "log_lines_dropped_total"
	NodeNATS        = PrefixNode + "nats_messages_total"
)

// Label names that Dynamo uses.
const (
	LabelNamespace     = "dynamo_namespace"
	LabelComponent     = "dynamo_component"
	LabelEndpoint      = "dynamo_endpoint"
	LabelModel         = "model"
	LabelHTTPEndpoint  = "endpoint"
	LabelRequestType   = "request_type"
	LabelStatus        = "status"
	LabelErrorType     = "error_type"
	LabelMigrationType = "migration_type"
	LabelOperation     = "operation"
	LabelStage         = "stage"
)

// Label names of our own.
const (
	LabelWorker    = "worker" // worker-7
	LabelState     = "state"
	LabelPhase     = "phase"
	LabelWhere     = "where"
	LabelWay       = "way"
	LabelReason    = "reason"
	LabelPool      = "pool" // of a topology; empty: the main one
	LabelSection   = "section"
	LabelOutcome   = "outcome"
	LabelDirection = "direction"
	LabelAgent     = "agent"
	LabelTransport = "transport"
	LabelWanted    = "wanted" // the transport that was expected
	LabelGPU       = "gpu"    // its index
	LabelUUID      = "uuid"
	LabelGPUName   = "name"
)

// Values of [LabelHTTPEndpoint].
const (
	EndpointChatCompletions = "chat_completions"
	EndpointCompletions     = "completions"
	EndpointEmbeddings      = "embeddings"
	EndpointResponses       = "responses"
)

// Values of [LabelRequestType].
const (
	RequestStream = "stream"
	RequestUnary  = "unary"
)

// Values of [LabelStatus].
const (
	StatusSuccess = "success"
	StatusError   = "error"
)

// Values of [LabelErrorType] in frontend metrics.
const (
	ErrorNone            = ""
	ErrorValidation      = "validation"
	ErrorNotFound        = "not_found"
	ErrorOverload        = "overload"
	ErrorUnavailable     = "unavailable"
	ErrorCancelled       = "cancelled"
	ErrorResponseTimeout = "response_timeout"
	ErrorInternal        = "internal"
	ErrorNotImplemented  = "not_implemented"
)

// Values of [LabelReason] for refused requests.
const (
	RefusedQueueFull   = "queue_full"          // too much of the client waits at the frontend
	RefusedWorkersFull = "workers_full"        // the queues of the workers are full
	RefusedBusy        = "workers_busy"        // all workers exceed a limit of the router
	RefusedDeadline    = "deadline"            // the request's deadline passed while it waited
	RefusedConstraints = "constraints"         // too many constraints of answers are being compiled
	RefusedSessionBusy = "session_worker_busy" // the worker does that has the session
	RefusedImages      = "images"              // there is no room for its images, or they do not come in time
	RefusedNamedBusy   = "named_worker_busy"   // the worker does that the request names
)

// Values of [LabelErrorType] in worker metrics.
const (
	WorkerErrorDeserialization = "deserialization"
	WorkerErrorInvalidMessage  = "invalid_message"
	WorkerErrorResponseStream  = "response_stream"
	WorkerErrorGenerate        = "generate"
	WorkerErrorSerialization   = "serialization"
	WorkerErrorPublishResponse = "publish_response"
	WorkerErrorPublishFinal    = "publish_final"
)

// Values of [LabelMigrationType].
const (
	MigrationNewRequest     = "new_request"     // before the first token
	MigrationOngoingRequest = "ongoing_request" // after it
)

// Values of [LabelOperation].
const (
	OperationTokenize   = "tokenize"
	OperationDetokenize = "detokenize"
)

// Values of [LabelStage].
const (
	StagePreprocess = "preprocess"
	StageQueue      = "queue"
	StageRoute      = "route"
	StageDispatch   = "dispatch"
)

// Values of [LabelPhase].
const (
	PhasePrefill = "prefill"
	PhaseDecode  = "decode"
	PhaseMixed   = "mixed"
)

// Values of [LabelDirection].
const (
	DirectionIn  = "in"
	DirectionOut = "out"
	DirectionTx  = "tx" // NIXL's names for transfers that the agent itself makes
	DirectionRx  = "rx"
)

// Planner metrics that Dynamo defines: the names of 0.8 with the prefix of 1.5.
const (
	PlannerPrefillWorkers   = PrefixPlanner + "num_p_workers"
	PlannerDecodeWorkers    = PrefixPlanner + "num_d_workers"
	PlannerTTFT             = PrefixPlanner + "observed_ttft"
	PlannerITL              = PrefixPlanner + "observed_itl"
	PlannerRate             = PrefixPlanner + "observed_request_rate"
	PlannerDuration         = PrefixPlanner + "observed_request_duration"
	PlannerISL              = PrefixPlanner + "observed_isl"
	PlannerOSL              = PrefixPlanner + "observed_osl"
	PlannerPredictedRate    = PrefixPlanner + "predicted_request_rate"
	PlannerPredictedISL     = PrefixPlanner + "predicted_isl"
	PlannerPredictedOSL     = PrefixPlanner + "predicted_osl"
	PlannerPredictedPrefill = PrefixPlanner + "predicted_num_p"
	PlannerPredictedDecode  = PrefixPlanner + "predicted_num_d"
	PlannerGPUHours         = PrefixPlanner + "gpu_hours"
)

// Planner metrics of our own.
const (
	PlannerDecisions  = PrefixPlanner + "decisions_total"
	PlannerMisses     = PrefixPlanner + "predicted_miss_ratio"
	PlannerBestEffort = PrefixPlanner + "best_effort"
)
