package cluster

import (
	"fmt"
	"strings"
)

// Every etcd key of the system is made here. Prefixes end in "/" so that a
// watch on "generate/" never sees "generate2/".

// InstanceKey holds the registration of an endpoint instance, under its worker's lease.
func InstanceKey(namespace, component, endpoint string, id InstanceID) string {
	return fmt.Sprintf("/services/%s/%s/%s/%s", namespace, component, endpoint, id)
}

// InstancePrefix covers the instances of all namespaces, or of one namespace, component
// or endpoint when those are not empty.
func InstancePrefix(namespace, component, endpoint string) string {
	p := "/services/"
	for _, part := range []string{namespace, component, endpoint} {
		if part == "" {
			break
		}
		p += part + "/"
	}
	return p
}

// CardKey holds the model card that a worker publishes, under its lease.
func CardKey(namespace, component, endpoint string, id InstanceID) string {
	return fmt.Sprintf("v1/mdc/%s/%s/%s/%s", namespace, component, endpoint, id)
}

// CardPrefix covers all model cards of a namespace.
func CardPrefix(namespace string) string { return "v1/mdc/" + namespace + "/" }

// TopologyKey holds the desired state; changed only by compare-and-swap.
func TopologyKey(namespace string) string { return "/dynctl/" + namespace + "/topology" }

// ControlPrefix covers the declared and the observed state of all namespaces.
const ControlPrefix = "/dynctl/"

// SplitKey splits a key below ControlPrefix into its namespace and the rest, such as
// "topology" or "status/worker-1". ok is false for keys that belong to no namespace:
// nodes and elections.
func SplitKey(key string) (namespace, rest string, ok bool) {
	inner, ok := strings.CutPrefix(key, ControlPrefix)
	if !ok || strings.HasPrefix(key, NodePrefix) || strings.HasPrefix(key, LeaderPrefix+"/") {
		return "", "", false
	}
	return strings.Cut(inner, "/")
}

// AssignmentKey holds the assignment of one worker.
func AssignmentKey(namespace, worker string) string { return AssignmentPrefix(namespace) + worker }

// AssignmentPrefix covers all assignments of a namespace.
func AssignmentPrefix(namespace string) string { return "/dynctl/" + namespace + "/workers/" }

// StatusKey holds the observed state of one worker, under its lease.
func StatusKey(namespace, worker string) string { return StatusPrefix(namespace) + worker }

// StatusPrefix covers all worker statuses of a namespace.
func StatusPrefix(namespace string) string { return "/dynctl/" + namespace + "/status/" }

// HistoryKey holds the topology and settings that were declared as one past generation.
func HistoryKey(namespace string, generation int64) string {
	return fmt.Sprintf("%s%016d", HistoryPrefix(namespace), generation)
}

// HistoryPrefix covers the past generations of a namespace's topology, in ascending
// order.
func HistoryPrefix(namespace string) string { return "/dynctl/" + namespace + "/history/" }

// CordonKey holds the order that a node shall run no workers.
func CordonKey(namespace, nodeID string) string { return CordonPrefix(namespace) + nodeID }

// CordonPrefix covers the cordons of a namespace, one for each drained node.
func CordonPrefix(namespace string) string { return "/dynctl/" + namespace + "/cordons/" }

// SecretKey holds the fingerprint of the secret that all nodes of a namespace share.
func SecretKey(namespace string) string { return "/dynctl/" + namespace + "/secret" }

// SettingKey holds one run-time setting, for example "disagg.max_local_prefill_tokens".
func SettingKey(namespace, name string) string { return SettingPrefix(namespace) + name }

// SettingPrefix covers all run-time settings of a namespace.
func SettingPrefix(namespace string) string { return "/dynctl/" + namespace + "/config/" }

// PlannerKey holds the planner's newest decision on one pool; the main pool is called "".
func PlannerKey(namespace, pool string) string { return ofPool(PlannerPrefix(namespace), pool) }

// PlannerPrefix covers the planner's decisions on all pools of a namespace; see [PoolOf].
func PlannerPrefix(namespace string) string { return "/dynctl/" + namespace + "/planner" }

// ofPool returns the key of a pool under a key, which is that of the main pool.
func ofPool(key, pool string) string {
	if pool == "" {
		return key
	}
	return key + "/" + pool
}

// PoolOf returns the pool of a key that [PlannerKey] or [DaysKey] made under a prefix.
func PoolOf(key, prefix string) string {
	return strings.TrimPrefix(strings.TrimPrefix(key, prefix), "/")
}

// VirtualPlannerKey holds what the planner tells programs that carry out its decisions, as text of a decimal
// number: one of [VirtualPrefill], [VirtualDecode], [VirtualDecision] and [VirtualScaled].
func VirtualPlannerKey(namespace, name string) string { return VirtualPlannerPrefix(namespace) + name }

// VirtualPlannerPrefix covers these keys of a namespace. They are those of Dynamo's virtual connector.
func VirtualPlannerPrefix(namespace string) string { return "v1/" + namespace + "/planner/" }

// Names of the keys below [VirtualPlannerPrefix].
const (
	VirtualPrefill  = "num_prefill_workers"
	VirtualDecode   = "num_decode_workers"
	VirtualDecision = "decision_id"        // of the two above; written after them, from 0 on
	VirtualScaled   = "scaled_decision_id" // the newest decision that was carried out, written by who did
)

// ProfileKey holds what the node that leads has learned of the workers' performance.
func ProfileKey(namespace string) string { return "/dynctl/" + namespace + "/profile" }

// MeasuredKey holds the profile that somebody measured for the planner, of the workers of one model.
func MeasuredKey(namespace, model string) string { return MeasuredPrefix(namespace) + model }

// MeasuredPrefix covers the measured profiles of a namespace.
func MeasuredPrefix(namespace string) string { return "/dynctl/" + namespace + "/measured/" }

// DaysKey holds the load of one pool in the last days, as the node that leads has seen it.
func DaysKey(namespace, pool string) string { return ofPool(DaysPrefix(namespace), pool) }

// DaysPrefix covers the load of all pools of a namespace; see [PoolOf].
func DaysPrefix(namespace string) string { return "/dynctl/" + namespace + "/days" }

// NodeKey holds the inventory of one node, under its agent's lease.
func NodeKey(nodeID string) string { return NodePrefix + nodeID }

// NodePrefix covers the nodes of all namespaces; see [Node.In].
const NodePrefix = "/dynctl/nodes/"

// LeaderPrefix covers the elections of all controllers.
const LeaderPrefix = "/dynctl/leader"

// ElectionPrefix covers the election of one namespace's controller. Namespaces that share
// an etcd each have a leader of their own.
func ElectionPrefix(namespace string) string { return LeaderPrefix + "/" + namespace }

// NIXLMetadataKey holds the NIXL metadata blob of one agent, under its worker's lease.
func NIXLMetadataKey(namespace, agent string) string { return NIXLMetadataPrefix(namespace) + agent }

// NIXLMetadataPrefix covers the NIXL metadata of a namespace.
func NIXLMetadataPrefix(namespace string) string { return namespace + "/nixl_metadata/" }
