package main

import (
	"strings"
	"testing"
)

// TestEncodingOfBytes compares with what binutils reads as tdpbusd.
func TestEncodingOfBytes(t *testing.T) {
	for _, tc := range []struct {
		dst, a, b int
		want      string
	}{
		{0, 4, 6, "C4 E2 49 5E C4"}, // tdpbusd %tmm6,%tmm4,%tmm0
		{3, 5, 7, "C4 E2 41 5E DD"}, // tdpbusd %tmm7,%tmm5,%tmm3
		{7, 2, 1, "C4 E2 71 5E FA"}, // tdpbusd %tmm1,%tmm2,%tmm7
	} {
		var text text
		text.tileDotBytes(tc.dst, tc.a, tc.b)
		var got []string
		for _, m := range byteOf.FindAllStringSubmatch(text.String(), -1) {
			got = append(got, m[1])
		}
		if s := strings.Join(got, " "); s != tc.want {
			t.Errorf("tile %d: %s, want %s", tc.dst, s, tc.want)
		}
	}
}
