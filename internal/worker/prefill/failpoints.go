package prefill

import "github.com/dynctl/dynctl/internal/failpoint"

// The steps at which a worker may be killed, as tests of whole clusters do.
// ../DESIGN.md has the states between them.
var (
	// Prefill side: messages and direct calls.
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
)
