"""How strong each augmentation is, the same for everybody: half-widths of uniform draws unless said otherwise."""

ANGLE = 15.0  # degrees
SHIFT = 0.1  # of width and height
LOG_SCALE = 0.1  # of the magnification
SLANT = 10.0  # degrees, in both directions
CROP = 0.35  # of the logarithm of the side: down to half of the area
COLOUR = 0.3  # brightness, contrast, saturation: factors in 0.7 … 1.3 (ours: logarithms in −0.3 … 0.3)
HUE = 0.1  # of the colour circle
GAMMA = 0.3  # exponents, likewise
NOISE = 0.1  # standard deviation
BLUR = 1.0  # the largest standard deviation of the kernel, in pixels
BLUR_KERNEL = 7  # its width where that has to be said: three standard deviations to each side
ERASED = (0.02, 0.33)  # of the area
ERASED_SIDE = 0.7  # of the size: the same area on average, once boxes of ours are cut at the border
CONCENTRATION = 1.0  # of Mixup's and CutMix's Beta: λ is uniform
SEVERITY = 3  # of AugMix
CLASSES = 10
AFFINE = [ANGLE, LOG_SCALE, LOG_SCALE, SLANT, SHIFT, SHIFT]  # in the order of optima's Affine
