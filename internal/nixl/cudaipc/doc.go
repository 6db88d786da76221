// Package cudaipc is the transport between processes of one machine that also moves
// memory of CUDA devices, without host memory in between: the initiator opens the
// device memory of its peer by CUDA IPC and has its device copy straight into it, or
// out of it. Host memory that can be shared is mapped, as by package nixl/shm.
//
// Start with [NewDevices], one per process, over a [Driver]; [Devices.NewArena]
// allocates memory to be registered as VRAM, or [Devices.Adopt] takes what an engine has
// allocated, and [New] makes the transport of an agent. Sessions, tickets and fences are
// those of package nixl/fenced: a copy begins and ends inside the fence, where the
// initiator waits for the event behind it.
//
// The package contains no binding of CUDA: whoever has one passes it in, and that of
// package cuda/driver fits as it is. A dynamod whose gpu.devices names GPUs does so, and
// offers the transport to peers on its host.
// DESIGN.md has the rules of CUDA IPC and how they are kept.
package cudaipc
