package decode

import "github.com/dynctl/dynctl/internal/failpoint"

// The steps at which a worker may be killed, as tests of whole clusters do.
// ../DESIGN.md has the states between them.
var (
	// Decode side of a remote prefill.
	pointTicketOpened  = failpoint.New("decode.ticket-opened")  // others may write, nobody knows it yet
	pointQueued        = failpoint.New("decode.queued")         // the message is in the queue
	pointTold          = failpoint.New("decode.told")           // a prefill worker says that all is written
	pointTicketRevoked = failpoint.New("decode.ticket-revoked") // nobody writes any more
	pointStarted       = failpoint.New("decode.started")        // the sequence runs with the KV
	pointPullLoaded    = failpoint.New("pull.metadata-loaded")  // the holder's agent is known
	pointPullPosted    = failpoint.New("pull.posted")           // the read is under way
	pointPullRead      = failpoint.New("pull.read")             // all KV is here
	pointPullTold      = failpoint.New("pull.read-notice-sent")

	// Source of a hand-over.
	pointOfferGranted = failpoint.New("source.granted")
	pointCopied       = failpoint.New("source.copied") // full blocks are written, the sequence runs
	pointPaused       = failpoint.New("source.paused")
	pointRestWritten  = failpoint.New("source.written")   // all blocks are
	pointCommitted    = failpoint.New("source.committed") // the frontend is not told yet
	pointMoved        = failpoint.New("source.moved")

	// Target of a hand-over.
	pointReserved      = failpoint.New("target.reserved")
	pointGranted       = failpoint.New("target.granted")
	pointCommitAsked   = failpoint.New("target.commit-asked")
	pointTargetRevoked = failpoint.New("target.ticket-revoked")
	pointParked        = failpoint.New("target.parked")   // the source is told, or about to be
	pointAttached      = failpoint.New("target.attached") // the frontend has followed
)
