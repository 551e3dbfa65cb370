"""Tasks of images and videos."""
