// Package drivertest is the suite that every driver.Driver passes: that of the machine,
// where it has a device, and the pretended ones.
//
// Start with [Run]. The drivers must know the kernel of the suite: its PTX is [PTX], and
// [Axpy] is its twin for package fake.
package drivertest
