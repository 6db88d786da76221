package driver

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"github.com/dynctl/dynctl/internal/dynlib"
)

// Numbers of CUdevice_attribute, and of compute modes.
const (
	attrMultiprocessors = 16
	attrIntegrated      = 18
	attrComputeMode     = 20
	attrPCIBus          = 33
	attrPCIDevice       = 34
	attrL2Bytes         = 38
	attrPCIDomain       = 50
	attrMajor           = 75
	attrMinor           = 76
	attrSharedOptIn     = 97

	modeProhibited       = 2
	modeExclusiveProcess = 3
)

// DeviceUUID implements Driver.
func (d *CUDA) DeviceUUID(device int) (uuid [16]byte, err error) {
	if err := d.known(device); err != nil {
		return uuid, err
	}
	return uuid, d.call("cuDeviceGetUuid", device, dynlib.Call(d.fn.deviceGetUUID, uintptr(unsafe.Pointer(&uuid)), uintptr(d.devices[device].device)))
}

// DeviceProperties implements Driver.
func (d *CUDA) DeviceProperties(device int) (p Properties, err error) {
	if p.UUID, err = d.DeviceUUID(device); err != nil {
		return Properties{}, err
	}
	h := uintptr(d.devices[device].device)
	var errs []error
	attribute := func(number uintptr) int {
		var v int32
		errs = append(errs, d.call("cuDeviceGetAttribute", device, dynlib.Call(d.fn.deviceGetAttribute, uintptr(unsafe.Pointer(&v)), number, h)))
		return int(v)
	}
	var name [256]byte
	errs = append(errs, d.call("cuDeviceGetName", device, dynlib.Call(d.fn.deviceGetName, uintptr(unsafe.Pointer(&name)), uintptr(len(name)), h)))
	text, _, _ := bytes.Cut(name[:], []byte{0})
	var total uint64
	errs = append(errs, d.call("cuDeviceTotalMem", device, dynlib.Call(d.fn.deviceTotalMem, uintptr(unsafe.Pointer(&total)), h)))
	mode := attribute(attrComputeMode)
	p.Name, p.MemoryBytes = string(text), int64(total)
	p.PCI = fmt.Sprintf("%04x:%02x:%02x.0", attribute(attrPCIDomain), attribute(attrPCIBus), attribute(attrPCIDevice))
	p.Major, p.Minor = attribute(attrMajor), attribute(attrMinor)
	p.Multiprocessors, p.L2Bytes = attribute(attrMultiprocessors), int64(attribute(attrL2Bytes))
	p.SharedBytes, p.Integrated = attribute(attrSharedOptIn), attribute(attrIntegrated) != 0
	p.ExclusiveProcess, p.ComputeProhibited = mode == modeExclusiveProcess, mode == modeProhibited
	if err := errors.Join(errs...); err != nil {
		return Properties{}, err
	}
	return p, nil
}

// MemGetInfo implements Driver.
func (d *CUDA) MemGetInfo(device int) (free, total int64, err error) {
	if err := d.enter(device); err != nil {
		return 0, 0, err
	}
	defer leave()
	var f, t uint64
	err = d.call("cuMemGetInfo", device, dynlib.Call(d.fn.memGetInfo, uintptr(unsafe.Pointer(&f)), uintptr(unsafe.Pointer(&t))))
	return int64(f), int64(t), err
}
