// Package orphan ends the processes that tests start when the process of the tests ends,
// however that ends: a time limit and kill -9 run no clean-up.
//
// It is imported by tests only. [Start] is for children, [Sweep] for what children have
// started that shall outlive them. Both do their work on Linux; elsewhere [Start] is
// exec.Cmd.Start and [Sweep] does nothing.
package orphan
