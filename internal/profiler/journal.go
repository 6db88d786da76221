package profiler

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"github.com/dynctl/dynctl/internal/profile"
)

// Subject is what is measured.
type Subject struct {
	Server  string         `json:"server"` // an address, or a worker of a cluster
	Model   string         `json:"model"`
	API     string         `json:"api"` // chat or completions
	Devices int            `json:"devices"`
	Limits  profile.Limits `json:"limits"`
}

// Errors of journals.
var (
	// ErrOther is returned for a journal of something else; the text says what differs.
	ErrOther = errors.New("it is of something else")
	// ErrJournal is returned for a file that is no journal.
	ErrJournal = errors.New("it is no journal of dynctl profile")
)

const (
	journalVersion = 1
	// maxJournal bounds a journal, in bytes.
	maxJournal = 8 << 20
)

// header is the first line of a journal.
type header struct {
	Version int     `json:"profiler_journal"`
	Subject Subject `json:"subject"`
}

// Journal is a file of measured points: one JSON document a line, the first of which names the
// subject. A line that was cut off, as by a crash, does not count.
type Journal struct{ file *os.File }

// OpenJournal opens a journal of the subject, or begins one, and returns what it has. fresh
// forgets what is there.
func OpenJournal(path string, of Subject, fresh bool) (*Journal, []Measurement, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, nil, err
	}
	have, err := prepare(file, of, fresh)
	if err != nil {
		_ = file.Close() // the error is told
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return &Journal{file}, have, nil
}

func prepare(file *os.File, of Subject, fresh bool) ([]Measurement, error) {
	var have []Measurement
	whole := int64(0)
	if !fresh {
		was, found, n, err := readJournal(file)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			if err := was.differs(of); err != nil {
				return nil, err
			}
		}
		have, whole = found, n
	}
	if err := file.Truncate(whole); err != nil {
		return nil, err
	}
	if _, err := file.Seek(whole, io.SeekStart); err != nil {
		return nil, err
	}
	if whole > 0 {
		return have, nil
	}
	return nil, appendLine(file, header{journalVersion, of})
}

// differs names the first thing in which two subjects differ.
func (a Subject) differs(b Subject) error {
	for _, f := range []struct {
		name string
		a, b any
	}{
		{"server", a.Server, b.Server}, {"model", a.Model, b.Model}, {"api", a.API, b.API}, {"devices", a.Devices, b.Devices},
		{"kv_blocks", a.Limits.KVBlocks, b.Limits.KVBlocks}, {"block_size", a.Limits.BlockSize, b.Limits.BlockSize}, {"max_num_seqs", a.Limits.MaxSeqs, b.Limits.MaxSeqs},
		{"max_num_batched_tokens", a.Limits.MaxBatchTokens, b.Limits.MaxBatchTokens}, {"max_model_len", a.Limits.MaxContext, b.Limits.MaxContext},
	} {
		if f.a != f.b {
			return fmt.Errorf("%w: its %s is %v, and this is %v", ErrOther, f.name, f.a, f.b)
		}
	}
	return nil
}

// readJournal returns what a journal has, and how many bytes of it are whole lines; 0 of an
// empty one.
func readJournal(r io.Reader) (of Subject, have []Measurement, whole int64, err error) {
	text, err := io.ReadAll(io.LimitReader(r, maxJournal+1))
	switch {
	case err != nil:
		return of, nil, 0, err
	case len(text) > maxJournal:
		return of, nil, 0, fmt.Errorf("%w: more than %d bytes", ErrJournal, maxJournal)
	}
	lines := bufio.NewScanner(bytes.NewReader(text[:bytes.LastIndexByte(text, '\n')+1]))
	lines.Buffer(nil, maxJournal+1)
	for n := 1; lines.Scan(); n++ {
		if n == 1 {
			var h header
			if err := decode(lines.Bytes(), &h); err != nil || h.Version != journalVersion {
				return of, nil, 0, fmt.Errorf("%w: line 1 is not its beginning", ErrJournal)
			}
			of = h.Subject
			continue
		}
		var m Measurement
		err := decode(lines.Bytes(), &m)
		if err == nil {
			err = m.check()
		}
		if err == nil && slices.ContainsFunc(have, func(o Measurement) bool { return o.Point == m.Point }) {
			err = errors.New("the point stands there twice")
		}
		if err != nil {
			return of, nil, 0, fmt.Errorf("%w: line %d: %w", ErrJournal, n, err)
		}
		have = append(have, m)
	}
	whole = int64(bytes.LastIndexByte(text, '\n') + 1)
	if whole == 0 && len(text) > 0 && !bytes.HasPrefix([]byte(`{"profiler_journal"`), text[:min(len(text), 19)]) {
		return of, nil, 0, fmt.Errorf("%w: line 1 is not its beginning", ErrJournal)
	}
	return of, have, whole, nil
}

func decode(line []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("text follows the JSON object")
	}
	return nil
}

// most bounds counts of tokens, and times in seconds, of one point.
const most = 1 << 30

func (m Measurement) check() error {
	switch {
	case m.Kind != Prefill && m.Kind != Decode:
		return fmt.Errorf("kind %q", m.Kind)
	case m.Tokens < 1 || m.Tokens > most || m.Streams < 1 || m.Streams > most:
		return errors.New("no such point")
	case !(m.Seconds > 0 && m.Seconds < most) || !(m.TookS >= 0 && m.TookS < most):
		return errors.New("no such time")
	case m.Kind == Prefill && (m.Streams != 1 || m.Prompt < 1 || m.Prompt > most || m.Cached < 0 || m.Cached >= m.Prompt):
		return errors.New("no such prompt")
	case m.Kind == Decode && (!(m.Context >= 1 && m.Context < most) || m.Counted < 1 || m.Counted > most || math.IsNaN(m.Context)):
		return errors.New("no such context")
	}
	return nil
}

// Add appends a point. It is on the disk when Add returns.
func (j *Journal) Add(m Measurement) error { return appendLine(j.file, m) }

// Close closes the file.
func (j *Journal) Close() error { return j.file.Close() }

func appendLine(file *os.File, v any) error {
	line, err := json.Marshal(v)
	if err == nil {
		_, err = file.Write(append(line, '\n'))
	}
	if err == nil {
		err = file.Sync()
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", file.Name(), err)
	}
	return nil
}
