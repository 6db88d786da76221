package protocol

// LogRequest asks a node's agent for a log.
type LogRequest struct {
	Worker string `json:"worker"` // empty: the agent's own log
	Tail   int    `json:"tail"`   // lines to begin with; 0 or less: all, up to 1 MiB
	Follow bool   `json:"follow"` // keep sending what is appended
}

// LogChunk is a piece of a log.
type LogChunk struct {
	Data []byte `json:"data"`
}
