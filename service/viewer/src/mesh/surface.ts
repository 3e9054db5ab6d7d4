// How a surface looks: a colour per vertex or a checker carried from the reference, in soft light.

import { DoubleSide, ShaderMaterial } from "three";

const VERTEX = /* glsl */ `
attribute vec4 colour;
attribute vec3 place; // where this vertex lies on the reference, in cells of the checker
varying vec3 vColour;
varying vec3 vPlace;
varying vec3 vNormal;
void main() {
  vColour = colour.rgb;
  vPlace = place;
  vNormal = normalMatrix * normal;
  gl_Position = projectionMatrix * modelViewMatrix * vec4(position, 1.0);
}`;

const FRAGMENT = /* glsl */ `
uniform float textured;
uniform float glow;
varying vec3 vColour;
varying vec3 vPlace;
varying vec3 vNormal;
const float PI = 3.14159265;

// Square waves whose flanks are one pixel wide, so that the checker does not shimmer.
float checker(vec3 place) {
  vec3 wave = clamp(sin(PI * place) / (PI * fwidth(place) + 1e-4), -1.0, 1.0);
  return 0.5 + 0.5 * wave.x * wave.y * wave.z;
}

void main() {
  vec3 normal = normalize(vNormal);
  if (!gl_FrontFacing) normal = -normal;
  vec3 base = vColour;
  if (textured > 0.5) base = mix(0.42 * base, mix(base, vec3(1.0), 0.3), checker(vPlace));
  float key = max(0.0, dot(normal, vec3(-0.36, 0.58, 0.73)));
  float fill = 0.5 + 0.5 * dot(normal, vec3(0.74, -0.18, 0.65));
  float rim = pow(1.0 - abs(normal.z), 3.0);
  gl_FragColor = vec4(base * (0.46 + 0.5 * key + 0.16 * fill) + rim * glow, 1.0);
}`;

export function surfaceMaterial(): ShaderMaterial {
  return new ShaderMaterial({
    vertexShader: VERTEX,
    fragmentShader: FRAGMENT,
    side: DoubleSide,
    uniforms: { textured: { value: 0 }, glow: { value: 0.1 } },
  });
}
