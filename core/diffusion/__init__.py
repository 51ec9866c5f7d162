"""Masked-diffusion targets: plain block-wise denoising, and Spiffy's draft graphs on top of it."""
