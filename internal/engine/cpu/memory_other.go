//go:build !linux

package cpu

func adviseHugePages([]byte) {}

func preferNode([]byte, int) {}
