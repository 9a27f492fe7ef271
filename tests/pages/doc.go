// Package pages acts out pages of docs with the test kit of users, on both stores.
package pages
