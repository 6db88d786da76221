package external

import "strings"

// control are the members of a request by which a proxy tells servers of any engine what to do:
// where KV is, which rank computes, under which id. A client that could set them could have a
// server connect to any host, or read the KV of others: what it sends under these names
// never reaches a server.
var control = map[string]bool{
	"kv_transfer_params": true, "ec_transfer_params": true, "disaggregated_params": true,
	"rid": true, "request_id": true, "data_parallel_rank": true, "routed_dp_rank": true, "disagg_prefill_dp_rank": true,
	"prompt_token_ids": true, "lora_request": true, "session_params": true, "conversation_params": true,
	"cache_hit_threshold": true,
}

// Controls reports whether a member, named in lower case, controls servers.
func Controls(name string) bool { return control[name] || strings.HasPrefix(name, "bootstrap_") }
