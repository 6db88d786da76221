// Package jointoken makes tokens with which other machines join a cluster that runs here.
package jointoken
