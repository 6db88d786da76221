package bench

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime/pprof"
	"time"
)

// errProfile is returned for a profile that has another form than the runtime's.
var errProfile = errors.New("unreadable CPU profile")

// stack is a sample of a CPU profile: the functions of one goroutine, the innermost
// first, and the processor time that the sample stands for.
type stack struct {
	functions []string
	spent     time.Duration
}

// profiled runs do under the CPU profiler, of which a process has one.
func profiled(do func() error) ([]stack, error) {
	var b bytes.Buffer
	if err := pprof.StartCPUProfile(&b); err != nil {
		return nil, err
	}
	err := do()
	pprof.StopCPUProfile()
	if err != nil {
		return nil, err
	}
	return readProfile(&b)
}

// Fields of the messages of profile.proto that are read.
const (
	profileSample, profileLocation, profileFunction, profileString = 2, 4, 5, 6
	sampleLocations, sampleValues                                  = 1, 2
	idField                                                        = 1 // of locations and functions
	locationLine, lineFunction, functionName                       = 4, 1, 2
)

// profile is what a profile says, before names are put in the place of ids.
type profile struct {
	texts     []string
	functions map[uint64]uint64   // id to text
	locations map[uint64][]uint64 // id to functions, the innermost first
	samples   []sample
}

type sample struct {
	locations, values []uint64
}

// readProfile reads a profile as runtime/pprof writes it: the last value of a sample is
// its processor time in nanoseconds.
func readProfile(r io.Reader) ([]stack, error) {
	unpacked, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errProfile, err)
	}
	body, err := io.ReadAll(unpacked)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errProfile, err)
	}
	p := profile{functions: map[uint64]uint64{}, locations: map[uint64][]uint64{}}
	if err := p.read(body); err != nil {
		return nil, err
	}
	var out []stack
	for _, s := range p.samples {
		if len(s.values) == 0 {
			return nil, fmt.Errorf("%w: a sample without values", errProfile)
		}
		one := stack{spent: time.Duration(s.values[len(s.values)-1])}
		for _, at := range s.locations {
			for _, f := range p.locations[at] {
				if name := p.functions[f]; name < uint64(len(p.texts)) {
					one.functions = append(one.functions, p.texts[name])
				}
			}
		}
		out = append(out, one)
	}
	return out, nil
}

func (p *profile) read(body []byte) error {
	return fields(body, func(n int, _ uint64, b []byte) error {
		switch n {
		case profileString:
			p.texts = append(p.texts, string(b))
		case profileFunction:
			var id, name uint64
			err := fields(b, func(n int, v uint64, _ []byte) error {
				switch n {
				case idField:
					id = v
				case functionName:
					name = v
				}
				return nil
			})
			p.functions[id] = name
			return err
		case profileLocation:
			return p.location(b)
		case profileSample:
			var s sample
			err := fields(b, func(n int, v uint64, b []byte) (err error) {
				switch n {
				case sampleLocations:
					s.locations, err = numbers(s.locations, v, b)
				case sampleValues:
					s.values, err = numbers(s.values, v, b)
				}
				return err
			})
			p.samples = append(p.samples, s)
			return err
		}
		return nil
	})
}

// location reads a location, which has several functions where some are inlined.
func (p *profile) location(b []byte) error {
	var id uint64
	var functions []uint64
	err := fields(b, func(n int, v uint64, b []byte) error {
		switch n {
		case idField:
			id = v
		case locationLine:
			return fields(b, func(n int, v uint64, _ []byte) error {
				if n == lineFunction {
					functions = append(functions, v)
				}
				return nil
			})
		}
		return nil
	})
	p.locations[id] = functions
	return err
}

// Kinds of fields in the encoding of protocol buffers.
const (
	kindNumber, kindFixed64, kindBytes, kindFixed32 = 0, 1, 2, 5
	kindBits                                        = 3 // of a field's tag
)

// fields calls do for each field of a message with its number, or with its bytes.
func fields(b []byte, do func(n int, v uint64, b []byte) error) error {
	for len(b) > 0 {
		tag, size := binary.Uvarint(b)
		if size <= 0 {
			return errProfile
		}
		b = b[size:]
		v, text := uint64(0), []byte(nil)
		switch tag & (1<<kindBits - 1) {
		case kindNumber:
			v, size = binary.Uvarint(b)
		case kindBytes:
			var length uint64
			if length, size = binary.Uvarint(b); size > 0 && length <= uint64(len(b)-size) {
				text = b[size : size+int(length)]
				size += int(length)
			} else {
				size = 0
			}
		case kindFixed64:
			size = 8
		case kindFixed32:
			size = 4
		default:
			size = 0
		}
		if size <= 0 || size > len(b) {
			return errProfile
		}
		if err := do(int(tag>>kindBits), v, text); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

// numbers appends those of a repeated field: a packed list, or one alone.
func numbers(to []uint64, v uint64, packed []byte) ([]uint64, error) {
	if packed == nil {
		return append(to, v), nil
	}
	for len(packed) > 0 {
		v, size := binary.Uvarint(packed)
		if size <= 0 {
			return to, errProfile
		}
		to, packed = append(to, v), packed[size:]
	}
	return to, nil
}
