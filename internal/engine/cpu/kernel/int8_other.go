//go:build !amd64

package kernel

import "unsafe"

func hasInt8Tiles() bool { return false }

func (l Level) unpackInt8(Type, unsafe.Pointer, unsafe.Pointer, int) { panic("no tiles") }

func (l Level) tilesInt8(Type, *CallInt8) { panic("no tiles") }
