package cluster

import "time"

// How long frontends wait for workers, which commands tell their users.
const (
	// SuccessorWait is how long a new request waits for a decode worker of its model while
	// none serves it, although the topology has some.
	SuccessorWait = 10 * time.Second
	// TakeoverWait is how long a request whose worker was lost waits for another one.
	TakeoverWait = 15 * time.Second
)
