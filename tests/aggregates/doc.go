// Package aggregates tests package aggregate on stores of each kind.
package aggregates
