// Package chat talks with the model that a cluster serves: dynctl chat.
package chat
