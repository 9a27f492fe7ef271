// Package transfer has what a move of a tenant does with rows. A store returns each row as a JSON object with the same
// members in every store. The members body and headers are JSON texts.
package transfer
