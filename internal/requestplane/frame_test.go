package requestplane

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestFrameReader(t *testing.T) {
	payloads := []string{"", "x", strings.Repeat("a", 10), strings.Repeat("b", readChunk), strings.Repeat("c", 3*keepChunk), "y", ""}
	var wire []byte
	for i, p := range payloads {
		wire = appendFrame(wire, byte(i+1), []byte(p))
	}
	readers := map[string]func(io.Reader) io.Reader{
		"whole":    func(r io.Reader) io.Reader { return r },
		"one byte": iotest.OneByteReader,
		"half":     iotest.HalfReader,
		"data err": iotest.DataErrReader,
	}
	for name, wrap := range readers {
		t.Run(name, func(t *testing.T) {
			f := &frameReader{src: wrap(bytes.NewReader(wire)), limit: 1 << 20}
			for i, want := range payloads {
				typ, got, err := f.next()
				if err != nil || typ != byte(i+1) || string(got) != want {
					t.Fatalf("frame %d: type %d, %d bytes, %v", i, typ, len(got), err)
				}
			}
			if _, _, err := f.next(); err != io.EOF {
				t.Errorf("end = %v, want io.EOF", err)
			}
		})
	}
}

// timeouts fails every second read, as a read deadline does.
type timeouts struct {
	r io.Reader
	n int
}

var errTimeout = errors.New("timeout")

func (t *timeouts) Read(p []byte) (int, error) {
	if t.n++; t.n%2 == 0 {
		return 0, errTimeout
	}
	return t.r.Read(p)
}

func TestFrameReaderResumes(t *testing.T) {
	var wire []byte
	for i := range 100 {
		wire = appendFrame(wire, frameItem, bytes.Repeat([]byte{byte(i)}, i))
	}
	f := &frameReader{src: &timeouts{r: iotest.OneByteReader(bytes.NewReader(wire))}, limit: 1000}
	for i := 0; i < 100; {
		_, got, err := f.next()
		switch {
		case err == errTimeout:
		case err != nil || len(got) != i || i > 0 && got[0] != byte(i):
			t.Fatalf("frame %d: %v, %v", i, got, err)
		default:
			i++
		}
	}
}

func TestFrameReaderTruncated(t *testing.T) {
	wire := appendFrame(nil, frameItem, []byte("payload"))
	for cut := 1; cut < len(wire); cut++ {
		f := &frameReader{src: bytes.NewReader(wire[:cut]), limit: 100}
		if _, _, err := f.next(); err != io.ErrUnexpectedEOF {
			t.Errorf("cut at %d: %v, want ErrUnexpectedEOF", cut, err)
		}
	}
}

func TestFrameReaderLimit(t *testing.T) {
	for n, ok := range map[uint32]bool{0: false, 1: true, 100: true, 101: false, 1<<31 - 1: false, 1<<32 - 1: false} {
		wire := append(binary.BigEndian.AppendUint32(nil, n), make([]byte, min(n, 200))...)
		f := &frameReader{src: bytes.NewReader(wire), limit: 100}
		if _, _, err := f.next(); (err == nil) != ok || !ok && !errors.Is(err, errFrame) {
			t.Errorf("length %d: %v", n, err)
		}
	}
}

func TestFrameReaderSkip(t *testing.T) {
	for _, size := range []int{0, 1, 100, 100_000} {
		wire := appendFrame(nil, frameRequest, make([]byte, size))
		f := &frameReader{src: iotest.HalfReader(bytes.NewReader(wire)), limit: 50}
		f.next() // may or may not have refused it
		if err := f.skip(); err != nil {
			t.Errorf("size %d: %v", size, err)
		}
		f = &frameReader{src: bytes.NewReader(wire[:len(wire)-1]), limit: 1 << 20}
		if err := f.skip(); size > 0 && err == nil {
			t.Errorf("size %d: skipped a truncated frame", size)
		}
	}
}

// The buffer follows the bytes that arrived and is given back.
func TestFrameReaderMemory(t *testing.T) {
	const size = 8 << 20
	wire := appendFrame(appendFrame(nil, frameItem, make([]byte, size)), frameItem, nil)
	pr, pw := io.Pipe()
	go func() {
		pw.Write(wire[:100_000])
		pw.Write(wire[100_000:])
	}()
	f := &frameReader{src: pr, limit: 32 << 20}
	for f.w < 100_000 {
		if err := f.fill(); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.buf) > 300_000 {
		t.Errorf("buffer of %d bytes for 100000 that arrived", len(f.buf))
	}
	for range 2 {
		if _, _, err := f.next(); err != nil {
			t.Fatal(err)
		}
	}
	go pw.Write(appendFrame(nil, frameEnd, nil))
	if _, _, err := f.next(); err != nil {
		t.Fatal(err)
	}
	if len(f.buf) > keepChunk {
		t.Errorf("buffer of %d bytes is kept", len(f.buf))
	}
}

func FuzzFrameReader(f *testing.F) {
	f.Add([]byte{}, uint16(100))
	f.Add(appendFrame(appendFrame(nil, frameItem, []byte("x")), frameEnd, nil), uint16(100))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1}, uint16(10))
	f.Add([]byte{0, 0, 0, 0}, uint16(1))
	f.Fuzz(func(t *testing.T, wire []byte, limit uint16) {
		var whole, pieces []byte
		read := func(r io.Reader) (out []byte, err error) {
			fr := &frameReader{src: r, limit: int(limit)}
			for {
				typ, p, err := fr.next()
				if err != nil {
					return out, err
				}
				if len(p)+1 > int(limit) {
					t.Fatalf("payload of %d bytes, limit %d", len(p), limit)
				}
				if len(fr.buf) > max(2*len(wire), readChunk)+4 {
					t.Fatalf("buffer of %d bytes for %d", len(fr.buf), len(wire))
				}
				out = appendFrame(out, typ, p)
			}
		}
		whole, err1 := read(bytes.NewReader(wire))
		pieces, err2 := read(iotest.OneByteReader(bytes.NewReader(wire)))
		if !bytes.Equal(whole, pieces) || (err1 == io.EOF) != (err2 == io.EOF) {
			t.Fatalf("whole %v, %v; in pieces %v, %v", whole, err1, pieces, err2)
		}
		if !bytes.HasPrefix(wire, whole) || err1 == io.EOF && len(whole) != len(wire) {
			t.Fatalf("frames %v are not what was sent: %v, %v", whole, wire, err1)
		}
	})
}

func FuzzDecodeRequest(f *testing.F) {
	good, err := encodeRequest(requestHeader{ID: "r", Path: "1/x", Headers: map[string]string{"a": "b"}, Timeout: time.Second}, "body", 1000)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good[frameOverhead:])
	f.Add([]byte{})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 1, 0x80})
	f.Fuzz(func(t *testing.T, p []byte) {
		h, body, err := decodeRequest(p)
		if err != nil {
			return
		}
		if h.Timeout < 0 || len(body) > len(p) {
			t.Fatalf("header %+v, body of %d bytes from %d", h, len(body), len(p))
		}
		again, err := encodeRequest(h, Raw(body), len(p)+maxHeader)
		if errors.Is(err, ErrTooLarge) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		h2, body2, err := decodeRequest(again[frameOverhead:])
		if err != nil || h2.ID != h.ID || h2.Path != h.Path || h2.Timeout != h.Timeout || len(h2.Headers) != len(h.Headers) || !bytes.Equal(body, body2) {
			t.Fatalf("%+v became %+v, %v", h, h2, err)
		}
	})
}

func FuzzDecodeError(f *testing.F) {
	f.Add(encodeError(&RemoteError{Kind: KindInternal, Message: "m"}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, p []byte) {
		if e := decodeError(p); e == nil || e.Kind == "" {
			t.Fatalf("decodeError = %v", e)
		}
	})
}
