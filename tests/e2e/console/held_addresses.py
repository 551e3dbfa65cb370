"""Addresses of images and sounds in memory that a page has made and not given back."""

from __future__ import annotations

COUNT_ADDRESSES = """(() => {
  const held = window.heldAddresses = new Set();
  held.made = 0;
  const {createObjectURL, revokeObjectURL} = URL;
  URL.createObjectURL = (blob) => {
    const address = createObjectURL.call(URL, blob);
    held.add(address);
    held.made += 1;
    return address;
  };
  URL.revokeObjectURL = (address) => { held.delete(address); revokeObjectURL.call(URL, address); };
})()"""
HELD = "window.heldAddresses.size"
MADE = "window.heldAddresses.made"
