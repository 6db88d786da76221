// Package model looks at models on this machine: dynctl model.
package model
