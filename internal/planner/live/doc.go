// Package live runs the planner beside the controller that leads: [Run]. It watches the store and the event
// plane, makes an observation of each pool in each load interval, has [planner.Share] ask the planners of all pools,
// tells what they say and, in mode act, carries it out. unit.go says what a pool is to its planner.
//
// [Gatherer] is the pure part: events and views go in, with the time, and observations come out. [Speed] learns
// from workers' counters how fast a worker is. A change is one compare-and-swap of the topology that was
// observed, or of the keys of the virtual connector; act.go says why two leaders never make the same one. With
// Kubernetes, pods.go has the pods follow the topology.
package live
