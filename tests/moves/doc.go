// Package moves tests moves of tenants between stores of each kind.
package moves
