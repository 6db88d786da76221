// Package clitest has what tests of dynctl's commands share: golden files, a drawn screen,
// nodes to look at.
package clitest
