package nixl

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"reflect"
	"strings"
	"testing"
)

func sampleMetadata(regions int) metadata {
	m := metadata{
		Identity: Identity{Name: "worker-7", Incarnation: "0b3c", HostID: "host"},
		conns:    []transportConn{{"local", []byte{1, 2}}, {"tcp", []byte("secret 10.0.0.1:4711")}},
		regions:  []RemoteRegion{},
	}
	for i := range regions {
		m.regions = append(m.regions, RemoteRegion{Label: fmt.Sprint("kv", i), Type: DRAM, Base: Desc{Addr: uint64(i) << 24, Len: 4096, DevID: uint64(i % 3)}, Shared: i%2 == 0})
	}
	return m
}

func TestMetadataRoundTrip(t *testing.T) {
	for _, regions := range []int{0, 1, 10_000} {
		want := sampleMetadata(regions)
		blob := want.encode()
		got, err := decodeMetadata(blob)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%d regions: what was decoded differs", regions)
		}
		if len(blob) > MaxMetadata {
			t.Errorf("%d regions take %d bytes", regions, len(blob))
		}
	}
}

// Agents of the first release offer cma by its former name.
func TestMetadataFormerName(t *testing.T) {
	m := sampleMetadata(1)
	m.conns = []transportConn{{"pvm", []byte{1}}}
	if got, err := decodeMetadata(m.encode()); err != nil || got.conn("cma") == nil {
		t.Errorf("got %+v, %v", got, err)
	}
}

// seal patches length and checksum of a blob that was tampered with.
func seal(b []byte) []byte {
	b = b[:len(b)-4]
	binary.LittleEndian.PutUint32(b[metadataHeader-4:], uint32(len(b)-metadataHeader))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

func TestMetadataRejects(t *testing.T) {
	blob := sampleMetadata(2).encode()
	change := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(blob)) }
	for _, c := range []struct {
		name, says string
		blob       []byte
	}{
		{"empty", "not a metadata blob", nil},
		{"garbage", "not a metadata blob", bytes.Repeat([]byte{7}, 100)},
		{"too long", "at most", make([]byte, MaxMetadata+1)},
		{"other version", "version 4", change(func(b []byte) []byte { b[8] = 4; return b })},
		{"flipped bit", "checksum", change(func(b []byte) []byte { b[40] ^= 1; return b })},
		{"truncated", "checksum", blob[:len(blob)-9]},
		{"truncated and sealed", "truncated", seal(change(func(b []byte) []byte { return b[:len(b)-1] }))},
		{"trailing bytes", "trailing", seal(append(bytes.Clone(blob), 0, 0))},
		{"no name", "no name", metadata{Identity: Identity{Incarnation: "1"}}.encode()},
		{"no incarnation", "no name", metadata{Identity: Identity{Name: "a"}}.encode()},
		{"empty region", "region 0", metadata{Identity: Identity{Name: "a", Incarnation: "1"}, regions: []RemoteRegion{{}}}.encode()},
		{"region that wraps around", "region 0", metadata{Identity: Identity{Name: "a", Incarnation: "1"}, regions: []RemoteRegion{{Base: Desc{Addr: math.MaxUint64, Len: 9}}}}.encode()},
		{"many transports", "transports", metadata{Identity: Identity{Name: "a", Incarnation: "1"}, conns: make([]transportConn, 100)}.encode()},
		{"a partial blob", "flags", seal(change(func(b []byte) []byte { b[10] = 1; return b }))},
		{"no flags", "flags", seal(change(func(b []byte) []byte { b[10] = 0; return b }))},
		{"4 billion regions", "regions in", seal(change(func(b []byte) []byte {
			copy(b[bytes.Index(b, []byte("4711"))+4:], []byte{255, 255, 255, 255})
			return b
		}))},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := decodeMetadata(c.blob)
			if StatusOf(err) != ErrMismatch || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want a mismatch that says %q", err, c.says)
			}
		})
	}
}

func FuzzMetadata(f *testing.F) {
	f.Add(sampleMetadata(0).encode())
	f.Add(sampleMetadata(3).encode())
	f.Add([]byte("DNXLMETA"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= metadataHeader+4 { // let it get past the checksum
			b = seal(bytes.Clone(b))
		}
		m, err := decodeMetadata(b)
		if err != nil {
			return
		}
		for _, r := range m.regions {
			if d := r.Desc(0, r.Base.Len); d != r.Base {
				t.Errorf("region %+v: Desc = %v", r, d)
			}
		}
		again, err := decodeMetadata(m.encode())
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Errorf("encoded again it decodes to %+v, %v", again, err)
		}
	})
}
