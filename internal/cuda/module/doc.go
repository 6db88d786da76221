// Package module loads kernels onto a device: of each unit the variant that fits, with
// a check of what the driver's compiler made of it.
//
// Start with [Builtin], the kernels of this program, and [Load], which has the driver
// compile units side by side; the first time on a machine that takes up to some seconds,
// later the driver has the result on its disk. [Set.Functions] is what package kernels
// launches.
//
// Every kernel is compared with the table that was made with its PTX. One that cannot be
// launched as it is meant to be is an error; one that takes more registers, or local
// memory, is right and may be slow: [Set.Kernels] tells, and [Options.Strict] makes it an
// error.
//
// Who works on kernels has [Sources] compiled on the machine that runs them, in place of
// what is part of this program.
//
// It works over the pretended driver of package fake, and has not yet run on hardware.
package module
