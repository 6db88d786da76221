// Package live runs the planner beside the controller that leads: [Run]. It watches the store and the event
// plane, makes an observation of each load interval, asks [planner.Planner], tells what it says and, in mode
// act, carries it out.
//
// [Gatherer] is the pure part: events and views go in, with the time, and observations come out. [Speed] learns
// from workers' counters how fast a worker is. A change is one compare-and-swap of the topology that was
// observed, or of the keys of the virtual connector; act.go says why two leaders never make the same one. With
// Kubernetes, pods.go has the pods follow the topology.
package live
