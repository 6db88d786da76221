package cluster

import (
	"fmt"
	"strings"
)

// Every etcd key of the system is made here. Prefixes end in "/" so that a
// watch on "generate/" never sees "generate2/".

// InstanceKey is where an endpoint instance registers, under its worker's lease.
func InstanceKey(namespace, component, endpoint string, id InstanceID) string {
	return fmt.Sprintf("/services/%s/%s/%s/%s", namespace, component, endpoint, id)
}

// InstancePrefix covers the instances of a namespace, or of one component or
// endpoint when those are not empty.
func InstancePrefix(namespace, component, endpoint string) string {
	p := "/services/" + namespace + "/"
	if component != "" {
		p += component + "/"
		if endpoint != "" {
			p += endpoint + "/"
		}
	}
	return p
}

// CardKey is where a worker publishes its model card, under its lease.
func CardKey(namespace, component, endpoint string, id InstanceID) string {
	return fmt.Sprintf("v1/mdc/%s/%s/%s/%s", namespace, component, endpoint, id)
}

// CardPrefix covers all model cards of a namespace.
func CardPrefix(namespace string) string { return "v1/mdc/" + namespace + "/" }

// TopologyKey holds the desired state; changed only by compare-and-swap.
func TopologyKey(namespace string) string { return "/dynctl/" + namespace + "/topology" }

// ControlPrefix covers everything that is declared and told of all namespaces.
const ControlPrefix = "/dynctl/"

// SplitKey returns the namespace of a key below ControlPrefix and the rest, as "topology"
// or "status/worker-1". Keys of all namespaces belong to none.
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

// HistoryKey holds what was declared as one generation of the topology.
func HistoryKey(namespace string, generation int64) string {
	return fmt.Sprintf("%s%016d", HistoryPrefix(namespace), generation)
}

// HistoryPrefix covers the past generations of a namespace's topology, in order.
func HistoryPrefix(namespace string) string { return "/dynctl/" + namespace + "/history/" }

// CordonKey holds the order that a node shall run no workers.
func CordonKey(namespace, nodeID string) string { return CordonPrefix(namespace) + nodeID }

// CordonPrefix covers the drained nodes of a namespace.
func CordonPrefix(namespace string) string { return "/dynctl/" + namespace + "/cordons/" }

// SecretKey holds the fingerprint of the secret that all nodes of a namespace share.
func SecretKey(namespace string) string { return "/dynctl/" + namespace + "/secret" }

// SettingKey holds one run-time setting, for example "disagg.max_local_prefill_tokens".
func SettingKey(namespace, name string) string { return SettingPrefix(namespace) + name }

// SettingPrefix covers all run-time settings of a namespace.
func SettingPrefix(namespace string) string { return "/dynctl/" + namespace + "/config/" }

// NodeKey holds the inventory of one node, under its agent's lease.
func NodeKey(nodeID string) string { return NodePrefix + nodeID }

// NodePrefix covers the nodes of all namespaces; see [Node.In].
const NodePrefix = "/dynctl/nodes/"

// LeaderPrefix covers the elections of all controllers.
const LeaderPrefix = "/dynctl/leader"

// ElectionPrefix is where the controllers of one namespace are elected. Namespaces
// that share an etcd have a leader each.
func ElectionPrefix(namespace string) string { return LeaderPrefix + "/" + namespace }

// NIXLMetadataKey holds the NIXL metadata blob of one agent, under its worker's lease.
func NIXLMetadataKey(namespace, agent string) string { return NIXLMetadataPrefix(namespace) + agent }

// NIXLMetadataPrefix covers the NIXL metadata of a namespace.
func NIXLMetadataPrefix(namespace string) string { return namespace + "/nixl_metadata/" }
