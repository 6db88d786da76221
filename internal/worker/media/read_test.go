package media

import (
	"errors"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/protocol"
)

// What does not fit exactly is refused by name. Nothing is guessed.
func TestReadable(t *testing.T) {
	f := &Finder{p: &Plane{cfg: Config{Width: 8}}}
	part := protocol.MediaPart{Rows: 3}
	good := func() *protocol.EncodeReply {
		return &protocol.EncodeReply{
			Worker: "worker-9", Shape: []int{3, 8}, DType: "torch.float32",
			Readable: protocol.Readable{
				Descriptors: []protocol.MemoryDescriptor{{Device: "cpu", Addr: 4096, Size: 96}},
				Key:         "000102030405060708090a0b0c0d0e0f", Operation: 1, EngineID: "worker-9.1",
			},
		}
	}
	if d, ticket, err := f.readable(good(), &part); err != nil || d.Addr != 4096 || d.Len != 96 || ticket.String() != good().Readable.Key {
		t.Errorf("%+v %v %v", d, ticket, err)
	}
	for want, change := range map[string]func(*protocol.EncodeReply){
		`values of type "torch.bfloat16"`:         func(r *protocol.EncodeReply) { r.DType = "torch.bfloat16" },
		`values of type ""`:                       func(r *protocol.EncodeReply) { r.DType = "" },
		"shape [3 9], the prompt has":             func(r *protocol.EncodeReply) { r.Shape[1] = 9 },
		"shape [4 8], the prompt has":             func(r *protocol.EncodeReply) { r.Shape[0] = 4 },
		"shape [1 3 8]":                           func(r *protocol.EncodeReply) { r.Shape = []int{1, 3, 8} },
		"shape [-3 -8]":                           func(r *protocol.EncodeReply) { r.Shape = []int{-3, -8} },
		"operation 2":                             func(r *protocol.EncodeReply) { r.Readable.Operation = 2 },
		"expected 96 bytes":                       func(r *protocol.EncodeReply) { r.Readable.Descriptors[0].Size = 95 },
		"memory [{Device:cuda:0":                  func(r *protocol.EncodeReply) { r.Readable.Descriptors[0].Device = "cuda:0" },
		"memory []":                               func(r *protocol.EncodeReply) { r.Readable.Descriptors = nil },
		"no ticket: parse ticket: 2 characters":   func(r *protocol.EncodeReply) { r.Readable.Key = "00" },
		"worker-9 answers with a tensor of shape": func(r *protocol.EncodeReply) { r.Shape = nil },
	} {
		r := good()
		change(r)
		if _, _, err := f.readable(r, &part); !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
