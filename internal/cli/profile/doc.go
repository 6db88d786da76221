// Package profile measures how fast a worker is: dynctl profile.
package profile
