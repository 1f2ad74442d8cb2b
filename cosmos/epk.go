package cosmos

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/lapsedb/lapse/schema/values"
)

// effective returns the effective partition key of version 2 as upper-case hex: one hash of
// all values, or with several paths one for each. SDKs divide a container into feed ranges
// by this value, and send the range back with a request. The form is that of Cosmos DB,
// known from the SDKs, which compute it, too.
func (k partitionKey) effective(several bool) string {
	if !several {
		var all []byte
		for _, v := range k {
			all = appendHashed(all, v)
		}
		return hash(all)
	}
	var b strings.Builder
	for _, v := range k {
		b.WriteString(hash(appendHashed(nil, v)))
	}
	return b.String()
}

// appendHashed appends a value in the form that is hashed. Each begins with a byte for the
// type, so that 1, "1" and true differ. A number is its double, little endian; a string
// ends with FF, which UTF-8 does not have.
func appendHashed(dst []byte, v values.Value) []byte {
	switch v.Kind() {
	case values.Null:
		return append(dst, 1)
	case values.False:
		return append(dst, 2)
	case values.True:
		return append(dst, 3)
	case values.Number:
		return binary.LittleEndian.AppendUint64(append(dst, 5), math.Float64bits(v.Float()))
	case values.String:
		return append(append(append(dst, 8), v.Text()...), 0xFF)
	}
	return append(dst, 0)
}

// hash returns the reversed murmur3 hash of data, whose first two bits are 0. Two bits are
// 0 so that no hash is FF or above, the end of the last range.
func hash(data []byte) string {
	low, high := murmur3(data)
	sum := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, low), high)
	slices.Reverse(sum)
	sum[0] &= 0x3F
	return fmt.Sprintf("%X", sum)
}

// Constants of murmur3.
const (
	murmurC1 = 0x87c37b91114253d5
	murmurC2 = 0x4cf5ad432745937f
)

// murmur3 is the hash of 128 bits for x64, with seed 0. It is MurmurHash3_x64_128 by
// Austin Appleby, in the public domain.
func murmur3(data []byte) (h1, h2 uint64) {
	size := uint64(len(data))
	for ; len(data) >= 16; data = data[16:] {
		h1 ^= mixLow(binary.LittleEndian.Uint64(data))
		h1 = (bits.RotateLeft64(h1, 27)+h2)*5 + 0x52dce729
		h2 ^= mixHigh(binary.LittleEndian.Uint64(data[8:]))
		h2 = (bits.RotateLeft64(h2, 31)+h1)*5 + 0x38495ab5
	}
	var tail [16]byte
	copy(tail[:], data)
	h2 ^= mixHigh(binary.LittleEndian.Uint64(tail[8:]))
	h1 ^= mixLow(binary.LittleEndian.Uint64(tail[:]))
	h1, h2 = h1^size, h2^size
	h1 += h2
	h2 += h1
	h1, h2 = avalanche(h1), avalanche(h2)
	h1 += h2
	h2 += h1
	return h1, h2
}

// mixLow and mixHigh mix eight bytes before they enter the state.
func mixLow(k uint64) uint64  { return bits.RotateLeft64(k*murmurC1, 31) * murmurC2 }
func mixHigh(k uint64) uint64 { return bits.RotateLeft64(k*murmurC2, 33) * murmurC1 }

// avalanche lets each bit of the input change each bit of the output with about even
// chance.
func avalanche(k uint64) uint64 {
	k = (k ^ k>>33) * 0xff51afd7ed558ccd
	k = (k ^ k>>33) * 0xc4ceb9fe1a85ec53
	return k ^ k>>33
}
