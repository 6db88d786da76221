package fake

import (
	"encoding/binary"

	"github.com/dynctl/dynctl/internal/cuda/driver"
)

// tensorMapMark begins an encoded map: none of a device does.
const tensorMapMark = 0x50414d45544e4554

// TensorMapEncode implements driver.Driver.
func (d *Driver) TensorMapEncode(device int, m *driver.TensorMap) (encoded driver.EncodedTensorMap, err error) {
	if err := d.enter("cuTensorMapEncodeTiled", device); err != nil {
		return encoded, err
	}
	defer d.mu.Unlock()
	return EncodeTensorMap(m)
}

// EncodeTensorMap encodes a map as fake drivers do: 64-bit numbers, little
// endian, which are a mark, the address, rows, columns and stride of the matrix, and rows
// and columns of the box.
func EncodeTensorMap(m *driver.TensorMap) (encoded driver.EncodedTensorMap, err error) {
	if err := m.Check(); err != nil {
		return encoded, err
	}
	for i, v := range [...]uint64{tensorMapMark, m.Address, m.Rows, m.Columns, m.Stride, uint64(m.BoxRows), uint64(m.BoxColumns)} {
		binary.LittleEndian.PutUint64(encoded[8*i:], v)
	}
	return encoded, nil
}

// DecodeTensorMap reads what EncodeTensorMap made; ok says whether it is such a map.
func DecodeTensorMap(encoded *driver.EncodedTensorMap) (m driver.TensorMap, ok bool) {
	v := func(i int) uint64 { return binary.LittleEndian.Uint64(encoded[8*i:]) }
	m = driver.TensorMap{Address: v(1), Rows: v(2), Columns: v(3), Stride: v(4), BoxRows: uint32(v(5)), BoxColumns: uint32(v(6))}
	return m, v(0) == tensorMapMark && m.Check() == nil
}

// Mistake notes that the kernel was launched with arguments that mean nothing.
func (c *Call) Mistake(format string, args ...any) { c.mistake(driver.InvalidValue, format, args...) }

// TensorMap reads the next argument as a tensor map.
func (c *Call) TensorMap() driver.TensorMap {
	const align = 64
	c.next = (c.next + align - 1) / align * align
	var encoded driver.EncodedTensorMap
	if c.next+len(encoded) > len(c.args) {
		c.mistake(driver.InvalidValue, "the kernel has more parameters than the launch has arguments")
		return driver.TensorMap{}
	}
	c.next += copy(encoded[:], c.args[c.next:])
	m, ok := DecodeTensorMap(&encoded)
	if !ok {
		c.mistake(driver.InvalidValue, "an argument is no tensor map")
	}
	return m
}
