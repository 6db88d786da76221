package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dynctl/dynctl/internal/cluster"
)

const (
	fileLogName    = "store.log"
	fileTempPrefix = ".tmp-"
	// fileVersion is the version of the format, which the snapshot names.
	fileVersion = 1
	// fileChecksum is the length of a record's checksum: eight hex digits and a space.
	fileChecksum = 9
)

// errDamaged is the cause of ErrUnavailable when the file has bytes that nobody wrote.
var errDamaged = errors.New("the store's file is damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record is one line of the log: what changed at one revision. Only one field besides Rev
// is set, except that End comes with the revision at which its keys are deleted.
type record struct {
	Rev      Revision      `json:"rev,omitempty"`
	Put      *fileKV       `json:"put,omitempty"`
	Delete   string        `json:"delete,omitempty"`
	Hold     *fileLease    `json:"hold,omitempty"` // grants or renews
	End      []string      `json:"end,omitempty"`  // leases, with their keys
	Snapshot *fileSnapshot `json:"snapshot,omitempty"`
}

// fileSnapshot is the first record of a file.
type fileSnapshot struct {
	Version int         `json:"version"`
	Store   string      `json:"store"` // random, for as long as the store's data lives
	Leases  []fileLease `json:"leases,omitempty"`
	Keys    []fileKV    `json:"keys,omitempty"`
}

type fileLease struct {
	ID    string        `json:"id"` // in hexadecimal
	TTL   time.Duration `json:"ttl_ns"`
	Beats uint64        `json:"beats"`
}

// fileKV is a key with its value: as text if it is that, else in base64.
type fileKV struct {
	Key   string   `json:"key"`
	Text  string   `json:"text,omitempty"`
	Bytes []byte   `json:"bytes,omitempty"`
	Rev   Revision `json:"rev,omitempty"` // in a snapshot
	Lease string   `json:"lease,omitempty"`
}

func toFileKV(kv KV) fileKV {
	f := fileKV{Key: kv.Key, Rev: kv.ModRevision}
	// JSON writes a control character as six bytes.
	if utf8.Valid(kv.Value) && !bytes.ContainsFunc(kv.Value, unicode.IsControl) {
		f.Text = string(kv.Value)
	} else {
		f.Bytes = kv.Value
	}
	if kv.Lease != 0 {
		f.Lease = kv.Lease.String()
	}
	return f
}

func (f fileKV) kv(rev Revision) (KV, error) {
	kv := KV{Key: f.Key, Value: f.Bytes, ModRevision: rev}
	if f.Bytes == nil {
		kv.Value = []byte(f.Text)
	}
	var err error
	if f.Lease != "" {
		kv.Lease, err = cluster.ParseInstanceID(f.Lease)
	}
	return kv, err
}

// encode returns the line of a record: a checksum, the record as JSON, and a line feed.
func (r record) encode() ([]byte, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	line := fmt.Appendf(make([]byte, 0, len(body)+fileChecksum+1), "%08x ", crc32.Checksum(body, castagnoli))
	line = append(line, body...)
	return append(line, '\n'), nil
}

// decodeRecord decodes a line without its line feed. ok is false for anything that was not
// written whole.
func decodeRecord(line []byte) (r record, ok bool) {
	if len(line) < fileChecksum || line[fileChecksum-1] != ' ' {
		return r, false
	}
	sum, err := strconv.ParseUint(string(line[:fileChecksum-1]), 16, 32)
	body := line[fileChecksum:]
	if err != nil || crc32.Checksum(body, castagnoli) != uint32(sum) || json.Unmarshal(body, &r) != nil {
		return record{}, false
	}
	return r, true
}

// fileLog is the open file of a store.
type fileLog struct {
	path     string
	file     *os.File // nil before the first read
	offset   int64    // end of the last whole record that was read or written
	snapshot int64    // length of the first record
}

// current reports whether the open file is still the one at its path. A file that does not
// exist is an fs.ErrNotExist.
func (l *fileLog) current() (bool, error) {
	there, err := os.Stat(l.path)
	if err != nil || l.file == nil {
		return false, err
	}
	open, err := l.file.Stat()
	if err != nil {
		return false, err
	}
	return os.SameFile(there, open), nil
}

// open begins to read the file at the path.
func (l *fileLog) open() error {
	file, err := os.OpenFile(l.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	l.close()
	l.file = file
	return nil
}

func (l *fileLog) close() {
	if l.file != nil {
		_ = l.file.Close() // all that matters was synced
	}
	l.file, l.offset, l.snapshot = nil, 0, 0
}

// read passes on the records after offset. rest holds the bytes after the last whole one.
func (l *fileLog) read(apply func(record) error) (rest []byte, err error) {
	info, err := l.file.Stat()
	switch {
	case err != nil || info.Size() == l.offset:
		return nil, err
	case info.Size() < l.offset:
		return nil, l.damaged()
	}
	rest, err = io.ReadAll(io.NewSectionReader(l.file, l.offset, info.Size()-l.offset))
	if err != nil {
		return nil, err
	}
	for {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			return rest, nil
		}
		r, ok := decodeRecord(rest[:end])
		if !ok {
			return rest, nil
		}
		if err := apply(r); err != nil {
			return nil, fmt.Errorf("%s: byte %d: %w", l.path, l.offset, err)
		}
		if l.offset == 0 {
			l.snapshot = int64(end + 1)
		}
		l.offset += int64(end + 1)
		rest = rest[end+1:]
	}
}

// mend removes what a process wrote that was killed in the middle of it. The caller holds
// the lock. Changes behind such bytes are not a killed process's doing; renewals, which are
// not synced, may be left there by a power failure.
func (l *fileLog) mend(rest []byte) error {
	_, behind, _ := bytes.Cut(rest, []byte{'\n'})
	for line := range bytes.SplitSeq(behind, []byte{'\n'}) {
		if r, ok := decodeRecord(line); ok && r.Hold == nil {
			return l.damaged()
		}
	}
	return l.file.Truncate(l.offset)
}

func (l *fileLog) damaged() error {
	return fmt.Errorf("%w: %s at byte %d; stop all that use it, and move it away to begin anew", errDamaged, l.path, l.offset)
}

// append writes a record. The caller holds the lock and has read the file.
func (l *fileLog) append(r record) error {
	line, err := r.encode()
	if err != nil {
		return err
	}
	if _, err := l.file.WriteAt(line, l.offset); err != nil {
		return errors.Join(err, l.file.Truncate(l.offset)) // else the next writer does
	}
	l.offset += int64(len(line))
	return nil
}

// rewrite replaces the file by a snapshot, in one step. The caller holds the lock.
func (l *fileLog) rewrite(snapshot record) error {
	line, err := snapshot.encode()
	if err != nil {
		return err
	}
	dir := filepath.Dir(l.path)
	left, err := filepath.Glob(filepath.Join(dir, fileTempPrefix+"*")) // by killed processes
	if err != nil {
		return err
	}
	for _, path := range left {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	tmp, err := os.CreateTemp(dir, fileTempPrefix) // mode 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(line)
	if err = errors.Join(err, tmp.Sync()); err == nil {
		err = os.Rename(tmp.Name(), l.path)
	}
	if err != nil {
		return errors.Join(err, tmp.Close(), os.Remove(tmp.Name()))
	}
	l.close()
	l.file, l.offset, l.snapshot = tmp, int64(len(line)), int64(len(line))
	return syncDir(dir)
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
