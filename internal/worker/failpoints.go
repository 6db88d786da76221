package worker

import "github.com/dynctl/dynctl/internal/failpoint"

// The steps at which a worker may be killed, as tests of whole clusters do. Each is
// named for the side that takes it; DESIGN.md has the states between them.
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

	// Prefill side: messages and direct calls; the writer serves rooms, too.
	pointFetched        = failpoint.New("prefill.fetched")         // the message is this worker's
	pointMetadataLoaded = failpoint.New("prefill.metadata-loaded") // the decode worker's agent is known
	pointStartTold      = failpoint.New("prefill.start-told")
	pointNotified       = failpoint.New("prefill.notified") // before the acknowledgement
	pointAcknowledged   = failpoint.New("prefill.acknowledged")

	// Prefill side: a hold.
	pointHoldComputed = failpoint.New("hold.computed")
	pointHoldOpened   = failpoint.New("hold.ticket-opened") // others may read, nobody knows it yet
	pointHoldTold     = failpoint.New("hold.told")          // the frontend knows where the KV is
	pointHoldRead     = failpoint.New("hold.read-notice")   // the reader is done
	pointHoldRevoked  = failpoint.New("hold.ticket-revoked")

	// Prefill side: a room.
	pointRoomEntered  = failpoint.New("room.entered")
	pointRoomOpened   = failpoint.New("room.opened") // the frontend knows that it is open
	pointRoomMet      = failpoint.New("room.met")    // the decode worker is there, too
	pointRoomAnswered = failpoint.New("room.answered")

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
