package main

import "testing"

// TestVPDPBUSD holds encodings to what the GNU assembler makes of {vex} vpdpbusd.
func TestVPDPBUSD(t *testing.T) {
	for _, tt := range []struct {
		sum, unsigned, signed int
		want                  string
	}{
		{0, 1, 2, "BYTE $0xC4; BYTE $0xE2; BYTE $0x75; BYTE $0x50; BYTE $0xC2"},
		{6, 12, 15, "BYTE $0xC4; BYTE $0xC2; BYTE $0x1D; BYTE $0x50; BYTE $0xF7"},
		{11, 12, 15, "BYTE $0xC4; BYTE $0x42; BYTE $0x1D; BYTE $0x50; BYTE $0xDF"},
		{9, 3, 4, "BYTE $0xC4; BYTE $0x62; BYTE $0x65; BYTE $0x50; BYTE $0xCC"},
	} {
		if got := vexVPDPBUSD(tt.sum, tt.unsigned, tt.signed); got != tt.want {
			t.Errorf("vpdpbusd ymm%d, ymm%d, ymm%d: %s, want %s", tt.sum, tt.unsigned, tt.signed, got, tt.want)
		}
	}
}
