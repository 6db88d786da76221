// Package chart has the tests of the Helm chart: it makes the plain manifests of its
// templates, so that both have one source.
package chart

//go:generate go test -run ^TestPlainManifests$ . -update
