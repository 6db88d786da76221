// Package replicasync lets frontends count the requests that other frontends have in
// flight: the replica sync of Dynamo's router.
//
// A [Sync] publishes what happens to the flights of its frontend on the event plane, in
// batches, and books the flights of other frontends in the same [router.Load]. Changes are
// numbered. A frontend that has just come, or has missed a change, asks the other one over
// the request plane for all its flights. The answer tells its position, so that the changes
// after it continue it: none is lost and none is applied twice. The flights of a frontend
// are forgotten when it leaves discovery, and when it can be neither heard nor asked for
// about five seconds.
//
// Blocks of generated tokens are not told.
package replicasync
