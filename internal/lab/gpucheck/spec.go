package gpucheck

import "time"

// spec is the task of a process. It comes as JSON on standard input.
type spec struct {
	Cases     []string
	Device    int
	Pretended bool
	// Small shapes stand for those of models.
	Small    bool
	Patience time.Duration // with work of the device
	Sources  string        // folder of kernels to be compiled
	Macros   []string
	NVRTC    string // library, empty for the system's
	CublasLt string // library, empty for the system's
	Models   string // folder of checkpoints with random weights
	Rates    *Rates
	Build    string
	Self     []string // command line of such a process
	Peer     *peerSpec
}

// message is a line that the process writes.
type message struct {
	About    *About  `json:"about,omitempty"`    // first of all
	Unusable string  `json:"unusable,omitempty"` // or this: nothing can be checked
	Begin    string  `json:"begin,omitempty"`    // a case
	Result   *Result `json:"result,omitempty"`
	Busy     string  `json:"busy,omitempty"` // it lives, and does this
}
