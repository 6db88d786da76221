// Package doctor checks this machine and a cluster: dynctl doctor.
//
// It gathers facts and asks questions, side by side and each with a deadline; package judge
// says what they mean.
package doctor
