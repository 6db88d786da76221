package media

import "github.com/dynctl/dynctl/internal/failpoint"

// The steps at which a worker may be killed, as tests of whole clusters do.
var (
	// Encode side.
	pointOffered   = failpoint.New("embeddings.offered") // others may read, nobody knows it yet
	pointOfferTold = failpoint.New("embeddings.told")
	pointOfferRead = failpoint.New("embeddings.read-notice")

	// The side that reads.
	pointAsked   = failpoint.New("embeddings.asked")
	pointAnswer  = failpoint.New("embeddings.answered") // where they are
	pointPosted  = failpoint.New("embeddings.posted")
	pointArrived = failpoint.New("embeddings.arrived")
)
