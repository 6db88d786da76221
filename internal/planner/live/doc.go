// Package live runs the planner beside the controller that leads: [Run]. It watches the store and the event
// plane, makes an observation of each load interval, asks [planner.Planner] and tells what it says.
//
// Nothing is carried out. [Gatherer] is the pure part: events and views go in, with the time, and
// observations come out. [Speed] learns from workers' counters how fast a worker is.
package live
