package kube

import (
	"encoding/binary"
	"math/bits"

	"github.com/dynctl/dynctl/internal/cluster"
)

// idMask keeps ids exact where JSON numbers are float64.
const idMask = 1<<53 - 1

// InstanceID returns the instance id of a DynamoWorkerMetadata object of that name:
// SipHash-1-3 with a zero key of the name and a byte 0xFF, cut to 53 bits.
func InstanceID(name string) cluster.InstanceID {
	return cluster.InstanceID(sipHash13(append([]byte(name), 0xFF)) & idMask)
}

// sipHash13 is SipHash with one round per word and three at the end, under the key (0, 0).
func sipHash13(data []byte) uint64 {
	v := sipState{0x736f6d6570736575, 0x646f72616e646f6d, 0x6c7967656e657261, 0x7465646279746573}
	last := uint64(len(data)) << 56 // only the length modulo 256 counts
	for ; len(data) >= 8; data = data[8:] {
		v.add(binary.LittleEndian.Uint64(data))
	}
	for i, b := range data {
		last |= uint64(b) << (8 * i)
	}
	v.add(last)
	v[2] ^= 0xFF
	for range 3 {
		v.round()
	}
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

type sipState [4]uint64

func (v *sipState) add(word uint64) {
	v[3] ^= word
	v.round()
	v[0] ^= word
}

func (v *sipState) round() {
	v[0] += v[1]
	v[1] = bits.RotateLeft64(v[1], 13) ^ v[0]
	v[0] = bits.RotateLeft64(v[0], 32)
	v[2] += v[3]
	v[3] = bits.RotateLeft64(v[3], 16) ^ v[2]
	v[0] += v[3]
	v[3] = bits.RotateLeft64(v[3], 21) ^ v[0]
	v[2] += v[1]
	v[1] = bits.RotateLeft64(v[1], 17) ^ v[2]
	v[2] = bits.RotateLeft64(v[2], 32)
}
