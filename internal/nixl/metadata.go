package nixl

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
)

// The metadata blob, little-endian:
//
//	magic "DNXLMETA", u16 version, u16 flags, u32 payload bytes, payload, u32 CRC-32C of all before
//
// Flags are 2: transports and all regions are there. Older agents knew partial blobs, too.
//
// The payload is name, incarnation and host id, then a u16 count of transports
// (name, u32 length, connection bytes), then a u32 count of regions (u8 memory type,
// u8 flags, u64 device, u64 address, u64 length, label). Strings are u16 length and bytes.
const (
	metadataMagic   = "DNXLMETA"
	metadataVersion = 3
	metadataHeader  = len(metadataMagic) + 2 + 2 + 4
	// MaxMetadata is the largest blob that is accepted, in bytes.
	MaxMetadata = 4 << 20

	maxNameLen    = 255
	maxTransports = 16
	maxConnLen    = 4096

	minRegionLen     = 1 + 1 + 8 + 8 + 8 + 2 // of a region without label
	maxRemoteRegions = MaxMetadata / minRegionLen

	flagsWhole = 2 // of a blob
	flagShared = 1 // of a region
	flagDirect = 2
)

// RemoteRegion is a region as peers see it.
type RemoteRegion struct {
	Label  string
	Type   MemType
	Base   Desc // all of it
	Shared bool // other processes of the peer's machine can map it, or what stands in for it
	Direct bool // memory of a device that the peer's DeviceTransport reaches
}

// Desc returns the descriptor of n bytes at off. A range outside of the region
// makes a descriptor that every use refuses.
func (r RemoteRegion) Desc(off, n uint64) Desc { return subDesc(r.Base, off, n) }

// metadata is a decoded blob.
type metadata struct {
	Identity
	conns   []transportConn
	regions []RemoteRegion
}

type transportConn struct {
	name string
	conn []byte
}

func (m metadata) conn(transport string) []byte {
	for _, c := range m.conns {
		if c.name == transport {
			return c.conn
		}
	}
	return nil
}

// directDevices lists the devices of regions that a DeviceTransport reaches.
func (m metadata) directDevices() (ids []uint64) {
	for _, r := range m.regions {
		if r.Direct {
			ids = append(ids, r.Base.DevID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// private returns the first region that other processes cannot map.
func (m metadata) private() (label string, found bool) {
	for _, r := range m.regions {
		if !r.Shared {
			return r.Label, true
		}
	}
	return "", false
}

func (m metadata) encode() []byte {
	b := make([]byte, 0, 256+64*len(m.regions))
	b = append(b, metadataMagic...)
	b = binary.LittleEndian.AppendUint16(b, metadataVersion)
	b = binary.LittleEndian.AppendUint16(b, flagsWhole)
	b = binary.LittleEndian.AppendUint32(b, 0) // patched below
	b = appendString(b, m.Name)
	b = appendString(b, m.Incarnation)
	b = appendString(b, m.HostID)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(m.conns)))
	for _, c := range m.conns {
		b = appendString(b, c.name)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(c.conn)))
		b = append(b, c.conn...)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.regions)))
	for _, r := range m.regions {
		var flags byte
		if r.Shared {
			flags = flagShared
		}
		if r.Direct {
			flags |= flagDirect
		}
		b = append(b, byte(r.Type), flags)
		b = binary.LittleEndian.AppendUint64(b, r.Base.DevID)
		b = binary.LittleEndian.AppendUint64(b, r.Base.Addr)
		b = binary.LittleEndian.AppendUint64(b, r.Base.Len)
		b = appendString(b, r.Label)
	}
	binary.LittleEndian.PutUint32(b[metadataHeader-4:], uint32(len(b)-metadataHeader))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint16(b, uint16(len(s))), s...)
}

func decodeMetadata(blob []byte) (metadata, error) {
	fail := func(format string, args ...any) (metadata, error) {
		return metadata{}, fmt.Errorf("decode metadata: %s: %w", fmt.Sprintf(format, args...), ErrMismatch)
	}
	if len(blob) > MaxMetadata {
		return fail("%d bytes, at most %d", len(blob), MaxMetadata)
	}
	if len(blob) < metadataHeader+4 || string(blob[:len(metadataMagic)]) != metadataMagic {
		return fail("not a metadata blob")
	}
	if v := binary.LittleEndian.Uint16(blob[len(metadataMagic):]); v != metadataVersion {
		return fail("version %d, this agent reads version %d", v, metadataVersion)
	}
	body, sum := blob[:len(blob)-4], binary.LittleEndian.Uint32(blob[len(blob)-4:])
	if crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)) != sum {
		return fail("checksum differs")
	}
	if n := binary.LittleEndian.Uint32(blob[metadataHeader-4:]); uint64(n) != uint64(len(body)-metadataHeader) {
		return fail("length differs")
	}

	if flags := binary.LittleEndian.Uint16(blob[len(metadataMagic)+2:]); flags != flagsWhole {
		return fail("flags %#x", flags)
	}
	var m metadata
	r := reader{b: body[metadataHeader:]}
	m.Name, m.Incarnation, m.HostID = r.str(), r.str(), r.str()
	nconns := int(r.u16())
	if nconns > maxTransports {
		return fail("%d transports", nconns)
	}
	for range nconns {
		c := transportConn{name: r.str()}
		if c.name == "pvm" { // what agents of the first release call cma
			c.name = "cma"
		}
		n := r.u32()
		if n > maxConnLen {
			return fail("connection information of %d bytes", n)
		}
		c.conn = append([]byte(nil), r.take(int(n))...)
		m.conns = append(m.conns, c)
	}
	nregions := int(r.u32())
	if nregions > len(r.b)/minRegionLen { // what follows cannot hold that many
		return fail("%d regions in %d bytes", nregions, len(r.b))
	}
	m.regions = make([]RemoteRegion, 0, nregions)
	for i := range nregions {
		var g RemoteRegion
		g.Type = MemType(r.u8())
		flags := r.u8()
		g.Shared, g.Direct = flags&flagShared != 0, flags&flagDirect != 0
		g.Base.DevID, g.Base.Addr, g.Base.Len = r.u64(), r.u64(), r.u64()
		g.Label = r.str()
		if !r.bad && !g.Base.valid() {
			return fail("region %d is %s", i, g.Base)
		}
		m.regions = append(m.regions, g)
	}
	switch {
	case r.bad || len(r.b) != 0:
		return fail("truncated or trailing bytes")
	case m.Name == "" || m.Incarnation == "":
		return fail("no name or incarnation")
	}
	return m, nil
}

// reader takes fields off a byte slice; after the first that is not there all are
// zero and bad is set.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) u8() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u16() uint16 {
	if b := r.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) str() string {
	n := int(r.u16())
	if n > maxNameLen {
		r.bad, r.b = true, nil
		return ""
	}
	return string(r.take(n))
}
