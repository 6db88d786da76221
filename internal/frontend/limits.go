package frontend

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// limits bound every wait of a frontend. But for one they are not configuration, so that users
// need not tune them. Tests shorten them.
type limits struct {
	// takeover bounds how long a request whose worker was lost looks for another one.
	takeover time.Duration
	// forgive is the time for which a request avoids a worker that failed it, unless no
	// other worker is left.
	forgive time.Duration
	// enter bounds how long a prefill worker may take to open a bootstrap room.
	enter time.Duration
	// poll is the interval at which a request without a worker looks again.
	poll time.Duration
	// keepAlive is the longest silence of a stream before it gets a comment.
	keepAlive time.Duration
	// write bounds how long a client may take to accept what is written to it. It is the
	// only one that users can set ([Config.WriteTimeout]).
	write time.Duration
	// body bounds how long a client may take to send its request.
	body time.Duration
	// intake bounds how long a large request waits for room and its turn.
	intake time.Duration
	// files bounds the total size of the files of one model, in bytes.
	files int
	// fetch bounds one attempt to load a model's files from one worker; retry is
	// the wait after the first failure and doubles up to retryMost.
	fetch, retry, retryMost time.Duration
	// card is how long a request without a worker waits for one that is registered: for its
	// model card, or for the end of its quarantine.
	card time.Duration
	// successor is how long a request waits for a decode worker of a model when none
	// serves it, but the topology has some: the last one restarts, or was drained.
	successor time.Duration
	// settle bounds how long requests wait for models that are loaded when a frontend starts.
	settle time.Duration
	// clear bounds how long the workers may take to clear their caches.
	clear time.Duration
	// stop bounds how long a stop waits for handlers that were told to end.
	stop time.Duration
}

func defaultLimits() limits {
	return limits{
		takeover: cluster.TakeoverWait, enter: 2 * time.Second, forgive: time.Second, poll: 50 * time.Millisecond,
		keepAlive: 15 * time.Second, write: 30 * time.Second, body: time.Minute, intake: 10 * time.Second,
		files: 256 << 20,
		fetch: 10 * time.Second, retry: time.Second, retryMost: 10 * time.Second,
		card: 5 * time.Second, successor: cluster.SuccessorWait, settle: 5 * time.Second, clear: 10 * time.Second, stop: 5 * time.Second,
	}
}
