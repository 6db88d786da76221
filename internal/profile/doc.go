// Package profile is the performance of a worker as data: what a step costs, what the worker
// holds, how fast its KV moves, and what was measured of it.
//
// A [Profile] is a JSON file ([Read], [Profile.Write]). [Costs] give the duration of a step
// by the features of its [Work], the same that the engine's own model of steps has; [Fit]
// finds them from measured steps. [Measured] holds tables as NVIDIA Dynamo's profiler makes
// them, which [ReadPrefill] and [ReadDecode] read from its files of NumPy arrays. Predictions
// of whole requests come from a table where the profile has one, else from the costs. Steps
// take what the costs say, and what the tables say only where there are no costs.
//
// All values are per worker unless a name says otherwise. Nothing here reads a clock, draws
// a random number or keeps state: a Profile may be used by several goroutines once nobody
// changes it any more.
package profile
