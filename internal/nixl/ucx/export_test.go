package ucx

// Emulated turns one-sided access on without devices.
func Emulated(o Options) Options {
	o.emulate = true
	return o
}
